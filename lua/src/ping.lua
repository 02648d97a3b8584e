-- Whether the server runs scripts. KEYS: any key; it is not touched.
return 1
