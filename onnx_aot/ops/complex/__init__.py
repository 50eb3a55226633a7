"""Complex numbers, and the Fourier transforms that make them.

``pairs`` is the representation, a real and an imaginary tensor, and the table of translations over
it; ``structural`` lists operators that treat both parts alike. ``arithmetic``, ``elementary`` and
``linear_algebra`` compute; ``fft`` and ``window_functions`` serve signals.
"""
