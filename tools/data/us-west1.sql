-- Sample shop, region us-west1. Made-up people; amounts in cents.

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
  (1, 'Ada Nguyen', 'ada.nguyen@example.com', 'Portland', '2024-04-08'),
  (2, 'Marcus Reed', 'marcus.reed@example.com', 'Seattle', '2024-07-27'),
  (3, 'Sofia Alvarez', 'sofia.alvarez@example.com', 'San Diego', '2024-04-21'),
  (4, 'Grace Kim', 'grace.kim@example.com', 'Los Angeles', '2024-04-07'),
  (5, 'Owen Carter', 'owen.carter@example.com', 'Boise', '2024-06-04'),
  (6, 'Priya Shah', 'priya.shah@example.com', 'San Jose', '2024-08-24'),
  (7, 'Liam O''Connor', 'liam.oconnor@example.com', 'Oakland', '2023-07-14'),
  (8, 'Naomi Begay', 'naomi.begay@example.com', 'Phoenix', '2023-07-09'),
  (9, 'Henry Walsh', 'henry.walsh@example.com', 'Tacoma', '2024-06-08'),
  (10, 'Isabel Ortiz', 'isabel.ortiz@example.com', 'Fresno', '2024-05-02');

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
  (1, 4, '2025-01-04', 'delivered'),
  (2, 4, '2025-01-11', 'delivered'),
  (3, 2, '2025-01-16', 'delivered'),
  (4, 9, '2025-01-17', 'delivered'),
  (5, 5, '2025-01-24', 'delivered'),
  (6, 1, '2025-01-25', 'returned'),
  (7, 5, '2025-02-06', 'delivered'),
  (8, 2, '2025-02-10', 'returned'),
  (9, 8, '2025-02-17', 'delivered'),
  (10, 3, '2025-03-19', 'delivered'),
  (11, 10, '2025-04-12', 'delivered'),
  (12, 10, '2025-04-25', 'returned'),
  (13, 5, '2025-04-26', 'delivered'),
  (14, 2, '2025-05-16', 'delivered'),
  (15, 1, '2025-05-18', 'delivered'),
  (16, 10, '2025-06-02', 'shipped'),
  (17, 5, '2025-06-07', 'paid'),
  (18, 9, '2025-06-07', 'paid'),
  (19, 7, '2025-06-09', 'paid'),
  (20, 9, '2025-06-11', 'paid'),
  (21, 10, '2025-06-12', 'shipped'),
  (22, 9, '2025-06-16', 'shipped'),
  (23, 1, '2025-06-17', 'paid'),
  (24, 4, '2025-06-27', 'shipped');

INSERT INTO order_items VALUES
  (1, 8, 1),
  (2, 5, 2),
  (3, 4, 1),
  (3, 5, 1),
  (3, 8, 1),
  (4, 1, 3),
  (4, 8, 1),
  (5, 1, 1),
  (5, 2, 1),
  (5, 6, 1),
  (6, 4, 2),
  (6, 6, 1),
  (6, 7, 3),
  (7, 2, 1),
  (7, 3, 1),
  (8, 4, 1),
  (9, 3, 1),
  (9, 5, 2),
  (9, 6, 3),
  (10, 1, 2),
  (10, 4, 1),
  (10, 7, 1),
  (11, 1, 1),
  (11, 2, 2),
  (12, 1, 1),
  (13, 6, 1),
  (14, 4, 3),
  (15, 5, 2),
  (15, 6, 1),
  (16, 7, 1),
  (17, 4, 1),
  (18, 7, 2),
  (19, 2, 1),
  (20, 4, 2),
  (20, 6, 1),
  (21, 2, 1),
  (21, 5, 1),
  (21, 8, 1),
  (22, 5, 1),
  (23, 5, 2),
  (24, 1, 1);
