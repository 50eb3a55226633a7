"""Dynamic dimensions outside of the capture.

``symbols`` gives torch's symbols the user's names, ``expressions`` writes what is computed from
them, and ``conditions`` interprets text such as ``x.shape[1] % 2 == 0`` without running it.
"""
