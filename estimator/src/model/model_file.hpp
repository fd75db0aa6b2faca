// Writes and reads the file of a model. A checkpoint has the same content, followed by the state of
// the optimizer.
#pragma once

#include <string>

#include <nlohmann/json.hpp>
#include <torch/serialize.h>

#include <hvd/estimator/model.hpp>

namespace hvd::detail {

/// Writes the tensors under their numbers, and a JSON text with their names, shapes and types, the
/// description and `more`.
void write_model(torch::serialize::OutputArchive& archive, const torch::nn::Module& module,
                 const ModelDescription& description, const nlohmann::ordered_json& more = {});

struct ModelFile {
  ModelDescription description{};
  nlohmann::ordered_json more{};
};
/// Throws Errc::protocol, naming `what`, when the archive is damaged.
[[nodiscard]] ModelFile read_description(torch::serialize::InputArchive& archive,
                                         const std::string& what);
/// Checks all tensors before it copies any into the module. Throws what `Model::load` throws.
void read_tensors(torch::serialize::InputArchive& archive, torch::nn::Module& module,
                  const std::string& what);

}  // namespace hvd::detail
