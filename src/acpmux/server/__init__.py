"""Clients in: each connection on its own, each at its own speed.

Toward them acpmux is an ACP agent (SPEC section 11).
"""
