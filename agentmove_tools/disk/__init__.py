"""The disk: folders walked and files written by descriptor, no link followed.

Both ends of a move use it: a Home's receiver and the unpacking of an agent package write by the
same ``Stage``, and both are read by the same ``walk``.
"""
