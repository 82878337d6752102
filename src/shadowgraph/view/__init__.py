"""Analyses as text for people."""
