-- Sample shop, region eu-west1. Made-up people; amounts in cents.

CREATE TABLE users (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  email TEXT NOT NULL UNIQUE,
  city TEXT NOT NULL,
  joined_on TEXT NOT NULL
);

CREATE TABLE products (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  category TEXT NOT NULL,
  price_cents INTEGER NOT NULL CHECK (price_cents > 0)
);

CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  user_id INTEGER NOT NULL REFERENCES users (id),
  ordered_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('paid', 'shipped', 'delivered', 'returned'))
);

CREATE TABLE order_items (
  order_id INTEGER NOT NULL REFERENCES orders (id),
  product_id INTEGER NOT NULL REFERENCES products (id),
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  PRIMARY KEY (order_id, product_id)
);

CREATE VIEW order_totals AS
SELECT orders.id AS order_id, orders.user_id, SUM(quantity * price_cents) AS total_cents
FROM orders
JOIN order_items ON order_items.order_id = orders.id
JOIN products ON products.id = order_items.product_id
GROUP BY orders.id;

INSERT INTO users VALUES
  (1, 'Clara Weber', 'clara.weber@example.com', 'Berlin', '2023-05-24'),
  (2, 'Luc Moreau', 'luc.moreau@example.com', 'Lyon', '2023-09-06'),
  (3, 'Giulia Conti', 'giulia.conti@example.com', 'Bologna', '2023-01-25'),
  (4, 'Søren Holm', 'soren.holm@example.com', 'Aarhus', '2024-09-19'),
  (5, 'Aoife Byrne', 'aoife.byrne@example.com', 'Galway', '2024-04-02'),
  (6, 'Zofia Nowak', 'zofia.nowak@example.com', 'Kraków', '2023-07-08'),
  (7, 'Nuno Pereira', 'nuno.pereira@example.com', 'Porto', '2023-05-04'),
  (8, 'Eva Lindqvist', 'eva.lindqvist@example.com', 'Göteborg', '2024-10-29'),
  (9, 'Tomáš Dvořák', 'tomas.dvorak@example.com', 'Brno', '2023-12-20'),
  (10, 'Inés García', 'ines.garcia@example.com', 'Bilbao', '2023-03-23');

INSERT INTO products VALUES
  (1, 'Desk lamp', 'home', 3490),
  (2, 'Notebook, dotted', 'stationery', 790),
  (3, 'Fountain pen', 'stationery', 2450),
  (4, 'Steel bottle', 'kitchen', 1990),
  (5, 'Pour-over kettle', 'kitchen', 5900),
  (6, 'Wool blanket', 'home', 8900),
  (7, 'Bicycle bell', 'outdoor', 1290),
  (8, 'Rain jacket', 'outdoor', 11900);

INSERT INTO orders VALUES
  (1, 6, '2025-01-06', 'delivered'),
  (2, 5, '2025-01-13', 'delivered'),
  (3, 1, '2025-01-13', 'delivered'),
  (4, 3, '2025-01-16', 'delivered'),
  (5, 10, '2025-01-29', 'delivered'),
  (6, 7, '2025-02-15', 'delivered'),
  (7, 1, '2025-02-16', 'delivered'),
  (8, 9, '2025-02-18', 'delivered'),
  (9, 9, '2025-03-01', 'delivered'),
  (10, 7, '2025-03-09', 'delivered'),
  (11, 2, '2025-03-10', 'delivered'),
  (12, 6, '2025-03-21', 'delivered'),
  (13, 9, '2025-03-23', 'delivered'),
  (14, 10, '2025-04-18', 'delivered'),
  (15, 4, '2025-04-21', 'delivered'),
  (16, 2, '2025-05-16', 'delivered'),
  (17, 7, '2025-05-22', 'delivered'),
  (18, 7, '2025-05-25', 'delivered'),
  (19, 4, '2025-05-28', 'delivered'),
  (20, 10, '2025-05-30', 'returned'),
  (21, 1, '2025-05-31', 'paid'),
  (22, 1, '2025-06-03', 'shipped'),
  (23, 9, '2025-06-25', 'shipped'),
  (24, 3, '2025-06-28', 'paid');

INSERT INTO order_items VALUES
  (1, 3, 1),
  (1, 4, 3),
  (2, 7, 1),
  (3, 3, 3),
  (3, 5, 2),
  (3, 8, 2),
  (4, 4, 3),
  (4, 6, 1),
  (5, 1, 2),
  (5, 7, 1),
  (5, 8, 1),
  (6, 4, 3),
  (7, 8, 1),
  (8, 2, 1),
  (8, 3, 1),
  (8, 6, 2),
  (9, 4, 1),
  (10, 3, 3),
  (11, 3, 2),
  (11, 5, 2),
  (11, 8, 1),
  (12, 5, 1),
  (13, 2, 1),
  (13, 3, 1),
  (14, 1, 1),
  (14, 2, 1),
  (14, 5, 1),
  (15, 7, 1),
  (15, 8, 1),
  (16, 3, 1),
  (16, 4, 3),
  (16, 8, 1),
  (17, 4, 1),
  (18, 7, 2),
  (19, 5, 1),
  (20, 3, 1),
  (21, 3, 1),
  (21, 5, 2),
  (21, 8, 1),
  (22, 8, 1),
  (23, 3, 1),
  (23, 7, 1),
  (23, 8, 2),
  (24, 5, 3),
  (24, 7, 1);
