#include <functional>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "state/agreement.hpp"
#include "state/digest.hpp"
#include "state/optimizer_coder.hpp"
#include "state/optimizer_copy.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd {

using namespace detail;

namespace {

using torch::optim::Optimizer;

/// The values that must be equal on every rank before the state can be sent.
struct Signature {
  std::int64_t code = -1;
  std::int64_t groups = 0;
  std::int64_t parameters = 0;
  std::int64_t digest = 0;  ///< the digest of dtypes and shapes

  static constexpr std::int64_t kFields = 4;
  friend bool operator==(const Signature&, const Signature&) = default;
};

Signature signature_of(const Optimizer& optimizer) {
  Signature signature;
  signature.code = optimizer_code(optimizer);
  Digest digest;
  for (const auto& group : optimizer.param_groups()) {
    ++signature.groups;
    digest.add(group.params().size());
    for (const torch::Tensor& parameter : group.params()) {
      ++signature.parameters;
      digest.add_kind(parameter);
    }
  }
  signature.digest = static_cast<std::int64_t>(digest.value());
  return signature;
}

std::string text_of_signature(const Signature& signature) {
  const auto known = static_cast<std::size_t>(signature.code) < std::size(kOptimizerNames);
  return fmt::format("{} with {} parameters in {} groups",
                     known ? kOptimizerNames[signature.code] : "an optimizer of its own type",
                     signature.parameters, signature.groups);
}

/// Compares the signatures of all ranks. Every rank sees the same ones, so either all throw or none
/// does.
void require_equal_on_all_ranks(Context& context, const Signature& mine) {
  const torch::Tensor all =
      allgather(torch::tensor({mine.code, mine.groups, mine.parameters, mine.digest}).view({1, -1}),
                {.name = "optimizer_state/signature", .context = &context});
  const auto rows = all.accessor<std::int64_t, 2>();
  const auto row = [&rows](std::int64_t rank) {
    return Signature{rows[rank][0], rows[rank][1], rows[rank][2], rows[rank][3]};
  };
  for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
    if (row(rank).code < 0) {
      throw Error(Errc::unsupported, fmt::format("broadcast_optimizer_state: rank {} has {}", rank,
                                                 text_of_signature(row(rank))));
    }
    if (row(rank) != row(0)) {
      throw Error(Errc::mismatch,
                  fmt::format("broadcast_optimizer_state: rank {} has {}, rank 0 has {}{}", rank,
                              text_of_signature(row(rank)), text_of_signature(row(0)),
                              row(rank).digest != row(0).digest ? " (their shapes differ)" : ""));
    }
  }
}

template <class Kind>
void write_optimizer(FieldWriter& writer, Optimizer& optimizer) {
  visit(writer, static_cast<typename Kind::Options&>(optimizer.defaults()));
  for (auto& group : optimizer.param_groups()) {
    visit(writer, static_cast<typename Kind::Options&>(group.options()));
    for (const torch::Tensor& parameter : group.params()) {
      const auto entry = optimizer.state().find(parameter.unsafeGetTensorImpl());
      const bool present = entry != optimizer.state().end();
      writer(present);
      if (present) visit(writer, static_cast<typename Kind::State&>(*entry->second));
    }
  }
}

/// Reads everything into new objects. The returned function puts them into the optimizer.
template <class Kind>
std::function<void()> read_optimizer(FieldReader& reader, Optimizer& optimizer) {
  struct Received {
    typename Kind::Options defaults;
    std::vector<typename Kind::Options> options;
    std::vector<std::pair<void*, typename Kind::State>> states;
  };
  using Options = typename Kind::Options;
  auto received =
      std::make_shared<Received>(Received{static_cast<Options&>(optimizer.defaults()), {}, {}});
  visit(reader, received->defaults);
  for (auto& group : optimizer.param_groups()) {
    visit(reader, received->options.emplace_back(static_cast<Options&>(group.options())));
    for (const torch::Tensor& parameter : group.params()) {
      reader.set_like(parameter);
      bool present = false;
      reader(present);
      if (!present) continue;
      auto& [key, state] = received->states.emplace_back();
      key = parameter.unsafeGetTensorImpl();
      visit(reader, state);
    }
  }
  reader.finish();

  return [received, &optimizer] {
    static_cast<Options&>(optimizer.defaults()) = received->defaults;
    for (std::size_t group = 0; group < received->options.size(); ++group) {
      static_cast<Options&>(optimizer.param_groups()[group].options()) = received->options[group];
    }
    optimizer.state().clear();
    for (const auto& [key, state] : received->states) {
      optimizer.state()[key] = std::make_unique<typename Kind::State>(state);
    }
  };
}

std::int64_t broadcast_size(Context& context, std::int64_t number, int root) {
  return broadcast(torch::tensor({number}), root,
                   {.name = "optimizer_state/size", .context = &context})
      .item<std::int64_t>();
}

void broadcast_fields(Context& context, Bytes& bytes, int root) {
  const torch::Tensor view =
      torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
  broadcast_(view, root, {.name = "optimizer_state/fields", .context = &context});
}

NamedTensors numbered(std::vector<torch::Tensor> tensors) {
  std::vector<NamedTensors::Item> named;
  for (torch::Tensor& tensor : tensors) {
    named.emplace_back(std::to_string(named.size()), std::move(tensor));
  }
  return named;
}

constexpr std::int64_t kRootFailed = -1;  // the root sends it in place of the size

template <class Kind>
void send(Context& context, Optimizer& optimizer, int root) {
  FieldWriter writer;
  try {
    write_optimizer<Kind>(writer, optimizer);
  } catch (...) {
    broadcast_size(context, kRootFailed, root);
    throw;
  }
  Bytes bytes = writer.take_bytes();
  broadcast_size(context, static_cast<std::int64_t>(bytes.size()), root);
  broadcast_fields(context, bytes, root);
  broadcast_tensors(context, numbered(writer.take_tensors()), "optimizer_state/", root);
}

template <class Kind>
void receive(Context& context, Optimizer& optimizer, int root) {
  const std::int64_t size = broadcast_size(context, 0, root);
  if (size < 0) {
    throw Error(Errc::unsupported,
                fmt::format("broadcast_optimizer_state: rank {} could not write its state", root));
  }
  Bytes bytes(static_cast<std::size_t>(size));
  broadcast_fields(context, bytes, root);
  FieldReader reader(bytes);
  const std::function<void()> commit = read_optimizer<Kind>(reader, optimizer);
  broadcast_tensors(context, numbered(reader.take_tensors()), "optimizer_state/", root);
  commit();
}

}  // namespace

OptimizerCopy detail::copy_of(Optimizer& given) {
  const torch::NoGradGuard no_grad;
  Optimizer& optimizer = unwrapped(given);
  const std::int64_t code = optimizer_code(optimizer);
  if (code < 0) {
    throw Error(Errc::unsupported, "the state of an optimizer of its own type cannot be copied");
  }
  FieldWriter writer;
  with_optimizer_kind(code, [&]<class Kind>(Kind) { write_optimizer<Kind>(writer, optimizer); });
  OptimizerCopy copy{writer.take_bytes(), writer.take_tensors()};
  for (torch::Tensor& tensor : copy.tensors) tensor = tensor.clone();
  return copy;
}

void detail::restore(Optimizer& given, const OptimizerCopy& copy) {
  const torch::NoGradGuard no_grad;
  Optimizer& optimizer = unwrapped(given);
  FieldReader reader(copy.fields);
  with_optimizer_kind(optimizer_code(optimizer), [&]<class Kind>(Kind) {
    const std::function<void()> commit = read_optimizer<Kind>(reader, optimizer);
    const std::vector<torch::Tensor> tensors = reader.take_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      torch::Tensor(tensors[i]).copy_(copy.tensors.at(i));
    }
    commit();
  });
}

void broadcast_optimizer_state(Optimizer& given, int root, Context& context) {
  const torch::NoGradGuard no_grad;
  Optimizer& optimizer = unwrapped(given);
  const Signature signature = signature_of(optimizer);
  require_equal_on_all_ranks(context, signature);
  with_optimizer_kind(signature.code, [&]<class Kind>(Kind) {
    if (context.rank() == root) {
      send<Kind>(context, optimizer, root);
    } else {
      receive<Kind>(context, optimizer, root);
    }
  });
}

}  // namespace hvd
