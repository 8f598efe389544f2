"""The robust optimum: the ``x`` whose worst case is best."""
