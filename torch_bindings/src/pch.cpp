// Exists to give the precompiled LibTorch header a target.
