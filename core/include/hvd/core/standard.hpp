// Says that the compiler's standard is older than C++20. The headers directly in hvd/ include this
// header first and hide everything else from such a compiler, so that it reports nothing but this.
#pragma once

#if __cplusplus < 202002L
#error "hvd needs C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#endif
