"""Orders on PostgreSQL: an order and its job in one transaction, points added once.

DATABASE_URL names a database in which tables may be made: postgresql://user:password@host/shop
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg

from yaoki import JobContext, Yaoki

URL = os.environ.get("DATABASE_URL", "postgresql://postgres@localhost/postgres")
app = Yaoki(URL)

TABLES = """
CREATE TABLE IF NOT EXISTS example_orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL);
CREATE TABLE IF NOT EXISTS example_customers (id bigint PRIMARY KEY, points bigint NOT NULL);
INSERT INTO example_customers VALUES (7, 0) ON CONFLICT (id) DO UPDATE SET points = 0;
"""


@app.job("add-points", queue="example", idempotency_key="example-order-{order_id}")
def add_points(ctx: JobContext, order_id: int, customer_id: int) -> None:
    with ctx.transaction() as tx:  # the points and the job's completion: one commit
        tx.execute("UPDATE example_customers SET points = points + 10 WHERE id = %s", [customer_id])


def order(number: int) -> None:
    """What a web request does. It runs twice if somebody clicks twice."""
    with psycopg.connect(URL) as shop, app.on(shop):  # the order and its job: one commit
        shop.execute("INSERT INTO example_orders VALUES (%s, 7)", [number])
        add_points.enqueue(order_id=number, customer_id=7)


def clicked_twice(number: int) -> int:
    """How many of the two came through."""
    orders = 0
    for _ in range(2):
        with suppress(psycopg.errors.UniqueViolation):  # rolled back, and its job with it
            order(number)
            orders += 1
    return orders


def main() -> None:
    with psycopg.connect(URL) as shop:
        shop.execute(TABLES)
        [(first,)] = shop.execute("SELECT coalesce(max(id), 0) + 1 FROM example_orders")
    with ThreadPoolExecutor(8) as requests:
        orders = sum(requests.map(clicked_twice, range(first, first + 100)))
    app.run_worker(["example"], until_empty=True)
    with psycopg.connect(URL) as shop:
        [(points,)] = shop.execute("SELECT points FROM example_customers")
    print(f"200 clicks, {orders} orders, {points} points")


if __name__ == "__main__":
    main()
