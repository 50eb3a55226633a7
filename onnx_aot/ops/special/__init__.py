"""Special functions, by the approximations that their files cite.

``series`` evaluates polynomials and series for ``bessel``, ``error_functions`` and ``gamma``;
``polynomials`` are orthogonal polynomials of any degree.
"""
