"""Linear algebra over real matrices.

``products_and_norms`` needs no algorithm; the other modules have one each: ``qr``, ``ldl``,
``jacobi`` for eigenvalues and singular values, ``solvers``, ``matrix_functions``. ``matrix_norms``
uses singular values; ``matrices`` has the parts that they share.
"""
