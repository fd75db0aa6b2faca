// Includes everything that a LibTorch trainer needs, also LibTorch itself.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <torch/torch.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/adasum.hpp>
#include <hvd/torch/agent_store.hpp>
#include <hvd/torch/checkpoint.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/compression.hpp>
#include <hvd/torch/distributed_data_parallel.hpp>
#include <hvd/torch/distributed_optimizer.hpp>
#include <hvd/torch/distributed_sampler.hpp>
#include <hvd/torch/elastic.hpp>
#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/exact_optimizer.hpp>
#include <hvd/torch/grad_scaler.hpp>
#include <hvd/torch/grouped_collectives.hpp>
#include <hvd/torch/intra_op_threads.hpp>
#include <hvd/torch/metric.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/object.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/parameters.hpp>
#include <hvd/torch/sharded_optimizer.hpp>
#include <hvd/torch/sparse.hpp>
#include <hvd/torch/sync_batch_norm.hpp>
#include <hvd/torch/tensor_work.hpp>
#include <hvd/torch/verify.hpp>
#include <hvd/torch/warmup_lr.hpp>

#endif
