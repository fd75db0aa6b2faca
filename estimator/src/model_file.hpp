// What is in a model's file and, with the optimizer behind it, in a checkpoint's.
#pragma once

#include <string>

#include <nlohmann/json.hpp>
#include <torch/serialize.h>

#include <hvd/estimator/model.hpp>

namespace hvd {

/// Tensors by number; names, shapes and types of them and the description as JSON, with `more` in
/// it.
void write_model(torch::serialize::OutputArchive& archive, const torch::nn::Module& module,
                 const ModelDescription& description, const nlohmann::ordered_json& more = {});

struct ModelFile {
  ModelDescription description{};
  nlohmann::ordered_json more{};
};
/// Throws Errc::protocol naming `what`.
[[nodiscard]] ModelFile read_description(torch::serialize::InputArchive& archive,
                                         const std::string& what);
/// Checks all of them, then copies them into the module's. Throws as `Model::load`.
void read_tensors(torch::serialize::InputArchive& archive, torch::nn::Module& module,
                  const std::string& what);

}  // namespace hvd
