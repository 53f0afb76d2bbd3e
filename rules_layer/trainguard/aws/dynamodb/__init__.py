"""The tables in DynamoDB: a store for each kind of item, over one form of columns."""
