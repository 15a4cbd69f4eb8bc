# Imports orders from the shop's export into the local database.
import csv
import os
import sqlite3
import sys


def main(path: str) -> int:
    token = os.environ.get("SHOP_API_TOKEN")
    if token is None:
        print("SHOP_API_TOKEN is not set; the import runs without prices", file=sys.stderr)
    connection = sqlite3.connect("orders.db")
    with open(path, newline="", encoding="utf-8") as source:
        for row in csv.DictReader(source):
            connection.execute("INSERT INTO orders VALUES (?, ?, ?)", (row["id"], row["customer"], row["total"]))
    connection.commit()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
