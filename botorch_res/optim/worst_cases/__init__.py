"""The worst case at every ``x``: the maximum over theta, for many functions at once."""
