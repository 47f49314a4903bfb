-- Sample shop, region asia-east1. Made-up people; amounts in cents.

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
  (1, 'Mei-Ling Chen', 'mei-ling.chen@example.com', 'Taipei', '2024-08-07'),
  (2, 'Haruto Sato', 'haruto.sato@example.com', 'Osaka', '2023-06-21'),
  (3, 'Ji-woo Park', 'ji-woo.park@example.com', 'Busan', '2024-10-09'),
  (4, 'Aarav Mehta', 'aarav.mehta@example.com', 'Pune', '2023-08-27'),
  (5, 'Nur Aisyah', 'nur.aisyah@example.com', 'Penang', '2023-10-11'),
  (6, 'Linh Tran', 'linh.tran@example.com', 'Da Nang', '2024-05-05'),
  (7, 'Kenji Mori', 'kenji.mori@example.com', 'Sapporo', '2024-10-29'),
  (8, 'Siti Rahma', 'siti.rahma@example.com', 'Bandung', '2024-06-29'),
  (9, 'Wei Zhang', 'wei.zhang@example.com', 'Tainan', '2024-06-24'),
  (10, 'Anan Suk', 'anan.suk@example.com', 'Chiang Mai', '2023-07-10');

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
  (1, 4, '2025-01-14', 'delivered'),
  (2, 5, '2025-01-19', 'returned'),
  (3, 6, '2025-03-13', 'delivered'),
  (4, 9, '2025-03-14', 'delivered'),
  (5, 6, '2025-03-19', 'delivered'),
  (6, 6, '2025-03-21', 'delivered'),
  (7, 4, '2025-03-23', 'delivered'),
  (8, 6, '2025-03-24', 'delivered'),
  (9, 6, '2025-04-16', 'delivered'),
  (10, 8, '2025-04-20', 'returned'),
  (11, 2, '2025-04-24', 'delivered'),
  (12, 8, '2025-05-04', 'delivered'),
  (13, 3, '2025-05-08', 'delivered'),
  (14, 7, '2025-05-09', 'delivered'),
  (15, 1, '2025-05-13', 'delivered'),
  (16, 10, '2025-05-16', 'delivered'),
  (17, 4, '2025-05-23', 'delivered'),
  (18, 9, '2025-06-05', 'shipped'),
  (19, 2, '2025-06-07', 'paid'),
  (20, 10, '2025-06-12', 'paid'),
  (21, 6, '2025-06-16', 'shipped'),
  (22, 1, '2025-06-22', 'paid'),
  (23, 6, '2025-06-23', 'shipped'),
  (24, 7, '2025-06-25', 'shipped');

INSERT INTO order_items VALUES
  (1, 1, 1),
  (2, 2, 1),
  (3, 5, 1),
  (4, 4, 1),
  (4, 7, 1),
  (5, 2, 1),
  (6, 1, 2),
  (7, 7, 2),
  (8, 1, 1),
  (8, 4, 2),
  (8, 5, 2),
  (9, 4, 1),
  (10, 3, 3),
  (10, 4, 2),
  (11, 3, 2),
  (11, 8, 3),
  (12, 1, 1),
  (12, 4, 1),
  (12, 7, 1),
  (13, 5, 1),
  (13, 8, 1),
  (14, 6, 3),
  (14, 7, 3),
  (15, 8, 1),
  (16, 2, 1),
  (17, 2, 1),
  (18, 1, 1),
  (18, 7, 2),
  (19, 8, 1),
  (20, 4, 1),
  (21, 8, 1),
  (22, 8, 1),
  (23, 6, 1),
  (24, 2, 1),
  (24, 3, 3),
  (24, 8, 1);
