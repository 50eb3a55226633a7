"""Special functions, computed by the approximations that their files cite.

``series`` evaluates polynomials and series for ``bessel``, ``error_functions`` and ``gamma``;
``polynomials`` has orthogonal polynomials of any degree.
"""
