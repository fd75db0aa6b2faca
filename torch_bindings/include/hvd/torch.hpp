// Everything a LibTorch trainer needs.
#pragma once

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/distributed_optimizer.hpp>
#include <hvd/torch/distributed_sampler.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/parameters.hpp>
#include <hvd/torch/tensor_work.hpp>
#include <hvd/torch/verify.hpp>
