// Declares elastic training without LibTorch: ranks come and go, and training goes on.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <hvd/hvd.hpp>
#include <hvd/ops/elastic.hpp>

#endif
