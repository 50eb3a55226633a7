"""Handles dynamic dimensions outside the capture.

``symbols`` gives torch's symbols the user's names, ``expressions`` writes expressions over them as
text, and ``conditions`` interprets text such as ``x.shape[1] % 2 == 0`` without running it.
"""
