"""Linear algebra over real matrices.

``products_and_norms`` needs no algorithm; the others are one each: ``qr``, ``ldl``, ``jacobi`` for
eigenvalues and singular values, ``solvers``, ``matrix_functions``. ``matrices`` has their parts.
"""
