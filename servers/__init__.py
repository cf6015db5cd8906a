"""Servers that tests and measurements run on, when nobody names one."""
