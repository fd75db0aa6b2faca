// Includes everything of hvd::estimator.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <hvd/estimator/batch_function.hpp>
#include <hvd/estimator/batch_reader.hpp>
#include <hvd/estimator/columns.hpp>
#include <hvd/estimator/estimator.hpp>
#include <hvd/estimator/estimator_main.hpp>
#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/history.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>
#include <hvd/estimator/trainable.hpp>
#include <hvd/torch.hpp>

#endif
