//! Persistent index structures: WORT, FAST & FAIR, P-CLHT.
