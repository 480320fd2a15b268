"""The tables of the pages, and the figures, a module a subject: `TABLES` has by name what writes each of them."""
