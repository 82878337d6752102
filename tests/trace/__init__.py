"""Tests of traces: spool, conversion, reading."""
