"""Names of dynamic dimensions, expressions over them, and conditions on them."""
