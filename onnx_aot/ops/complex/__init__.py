"""Complex numbers, and the Fourier transforms that produce them.

``pairs`` has the representation, a real and an imaginary tensor, and the table of translations for
it; ``structural`` lists operators that treat both parts alike. ``arithmetic``, ``elementary`` and
``linear_algebra`` compute; ``jacobi`` and ``eigenvalues`` iterate; ``fft`` and ``window_functions``
are for signal processing.
"""
