"""Linear algebra over real matrices.

``products_and_norms`` needs no algorithm; the other modules have one each: ``qr``, ``ldl``,
``jacobi`` for eigenvalues and singular values, ``solvers``, ``matrix_functions``. ``matrices`` has
the parts that they share.
"""
