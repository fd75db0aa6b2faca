// This file is empty: CMake needs a source file for the target of the precompiled LibTorch header.
