"""Trace folders: raw spool, Parquet columns, manifest, reading."""
