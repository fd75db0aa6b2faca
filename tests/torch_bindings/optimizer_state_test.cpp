// Tests that all ranks get options and state of rank 0's optimizer, for every optimizer of the C++
// API.
#include <gmock/gmock.h>

#include "training.hpp"

namespace hvd::optimizer_state_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace optim = torch::optim;

/// Makes steps on the same data on every rank.
void step(torch::nn::Sequential& net, optim::Optimizer& optimizer, int times) {
  for (int i = 0; i < times; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      torch::Tensor loss = loss_of(net, global_batch(i));
      loss.backward();
      return loss;
    });
  }
}

template <class Base, class State, class Options>
struct Case {
  using Optimizer = Base;
  using ParamState = State;
  using ParamOptions = Options;
};

template <class C>
struct Settings;  // options of root, and others that are to be overwritten

using Sgd = Case<optim::SGD, optim::SGDParamState, optim::SGDOptions>;
using Adam = Case<optim::Adam, optim::AdamParamState, optim::AdamOptions>;
using AdamW = Case<optim::AdamW, optim::AdamWParamState, optim::AdamWOptions>;
using Adagrad = Case<optim::Adagrad, optim::AdagradParamState, optim::AdagradOptions>;
using Rmsprop = Case<optim::RMSprop, optim::RMSpropParamState, optim::RMSpropOptions>;
using Lbfgs = Case<optim::LBFGS, optim::LBFGSParamState, optim::LBFGSOptions>;

// Every field differs from its default.
template <>
struct Settings<Sgd> {
  static auto root() {
    return optim::SGDOptions(0.07).momentum(0.8).weight_decay(0.02).dampening(0.1);
  }
  static auto other() { return optim::SGDOptions(0.5).momentum(0.1).nesterov(true); }
};
template <>
struct Settings<Adam> {
  static auto root() {
    return optim::AdamOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.01).amsgrad(true);
  }
  static auto other() { return optim::AdamOptions(0.5); }
};
template <>
struct Settings<AdamW> {
  static auto root() {
    return optim::AdamWOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.03).amsgrad(true);
  }
  static auto other() { return optim::AdamWOptions(0.5); }
};
template <>
struct Settings<Adagrad> {
  static auto root() {
    return optim::AdagradOptions(0.05)
        .lr_decay(0.1)
        .weight_decay(0.01)
        .eps(1e-6)
        .initial_accumulator_value(0.3);
  }
  static auto other() { return optim::AdagradOptions(0.5); }
};
template <>
struct Settings<Rmsprop> {
  static auto root() {
    return optim::RMSpropOptions(0.02)
        .alpha(0.9)
        .eps(1e-6)
        .weight_decay(0.01)
        .momentum(0.5)
        .centered(true);
  }
  static auto other() { return optim::RMSpropOptions(0.5); }
};
template <>
struct Settings<Lbfgs> {
  static auto root() {
    return optim::LBFGSOptions(0.3)
        .max_iter(3)
        .tolerance_grad(1e-9)
        .tolerance_change(1e-11)
        .history_size(4)
        .line_search_fn("strong_wolfe");
  }
  static auto other() { return optim::LBFGSOptions(1); }
};

template <class C>
class OptimizerState : public testing::Test {};
using Cases = testing::Types<Sgd, Adam, AdamW, Adagrad, Rmsprop, Lbfgs>;
TYPED_TEST_SUITE(OptimizerState, Cases);

template <class State>
bool same_state(const State& a, const State& b) {
  return a == b;
}

bool same_tensor(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || equal_bits(a, b));
}

template <class Tensors>
bool same_tensors(const Tensors& a, const Tensors& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const torch::Tensor& x, const torch::Tensor& y) { return same_tensor(x, y); });
}

// LibTorch's own comparison throws when some of `al` are undefined, as they are after few steps.
bool same_state(const optim::LBFGSParamState& a, const optim::LBFGSParamState& b) {
  return a.func_evals() == b.func_evals() && a.n_iter() == b.n_iter() && a.t() == b.t() &&
         a.prev_loss() == b.prev_loss() && same_tensor(a.d(), b.d()) &&
         same_tensor(a.H_diag(), b.H_diag()) &&
         same_tensor(a.prev_flat_grad(), b.prev_flat_grad()) &&
         same_tensors(a.old_dirs(), b.old_dirs()) && same_tensors(a.old_stps(), b.old_stps()) &&
         same_tensors(a.ro(), b.ro()) && a.al().has_value() == b.al().has_value() &&
         (!a.al() || same_tensors(*a.al(), *b.al()));
}

template <class C>
bool same(const optim::Optimizer& a, const torch::nn::Sequential& net_a, const optim::Optimizer& b,
          const torch::nn::Sequential& net_b) {
  using Options = typename C::ParamOptions;
  using State = typename C::ParamState;
  if (!(static_cast<const Options&>(a.defaults()) == static_cast<const Options&>(b.defaults()))) {
    return false;
  }
  for (std::size_t group = 0; group < a.param_groups().size(); ++group) {
    const auto* left = dynamic_cast<const Options*>(&a.param_groups()[group].options());
    const auto* right = dynamic_cast<const Options*>(&b.param_groups()[group].options());
    if (!left || !right || !(*left == *right)) return false;
  }
  if (a.state().size() != b.state().size()) return false;
  const auto parameters_a = net_a->parameters();
  const auto parameters_b = net_b->parameters();
  for (std::size_t i = 0; i < parameters_a.size(); ++i) {
    const auto left = a.state().find(parameters_a[i].unsafeGetTensorImpl());
    const auto right = b.state().find(parameters_b[i].unsafeGetTensorImpl());
    if ((left == a.state().end()) != (right == b.state().end())) return false;
    if (left == a.state().end()) continue;
    if (!same_state(static_cast<const State&>(*left->second),
                    static_cast<const State&>(*right->second))) {
      return false;
    }
  }
  return true;
}

/// `root_steps` and `other_steps` say how many steps each had made before.
template <class C>
void broadcast_and_compare(int size, int root, int root_steps, int other_steps) {
  using Optimizer = typename C::Optimizer;
  auto reference = make_net(1);
  Optimizer wanted(reference->parameters(), Settings<C>::root());
  step(reference, wanted, root_steps);
  on_ranks(size, [&](Context& context) {
    const bool is_root = context.rank() == root;
    auto net = make_net(1);
    Optimizer optimizer(net->parameters(), is_root ? Settings<C>::root() : Settings<C>::other());
    step(net, optimizer, is_root ? root_steps : other_steps);
    const auto before = values_of(net);
    broadcast_optimizer_state(optimizer, root, context);
    EXPECT_EQ(largest_difference(values_of(net), before), 0) << "it made a step";
    EXPECT_TRUE(same<C>(optimizer, net, wanted, reference)) << "rank " << context.rank();

    // With that state and the same parameters, all ranks continue alike.
    broadcast_parameters(net, root, context);
    step(net, optimizer, 2);
    EXPECT_TRUE(verify(net, context));
  });
}

TYPED_TEST(OptimizerState, ReachesRanksThatHaveNone) {
  for (const int size : {1, 2, 3, 4}) broadcast_and_compare<TypeParam>(size, 0, 3, 0);
}

TYPED_TEST(OptimizerState, ReplacesWhatOtherRanksHave) {
  broadcast_and_compare<TypeParam>(3, 2, 2, 4);
}

TYPED_TEST(OptimizerState, OfARootThatHasNoneDropsIt) {
  broadcast_and_compare<TypeParam>(2, 1, 0, 2);
}

TEST(OptimizerStateOf, SeveralGroupsKeepTheirOptions) {
  on_ranks(2, [&](Context& context) {
    auto net = make_net(1);
    const auto parameters = net->parameters();
    const double lr = context.rank() == 0 ? 0.1 : 0.9;
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<torch::Tensor>{parameters[0]},
                        std::make_unique<optim::SGDOptions>(lr / 2));
    groups.emplace_back(std::vector<torch::Tensor>{parameters[1], parameters[2], parameters[3]});
    optim::SGD sgd(groups, optim::SGDOptions(lr).momentum(0.5));
    broadcast_optimizer_state(sgd, 0, context);
    EXPECT_DOUBLE_EQ(sgd.param_groups()[0].options().get_lr(), 0.05);
    EXPECT_DOUBLE_EQ(sgd.param_groups()[1].options().get_lr(), 0.1);
    EXPECT_DOUBLE_EQ(sgd.defaults().get_lr(), 0.1);
  });
}

TEST(OptimizerStateOf, BothFormsOfTheDistributedOptimizer) {
  on_ranks(2, [&](Context& context) {
    auto net = make_net(1);
    const auto options = optim::AdamOptions(context.rank() == 0 ? 0.1 : 0.9);
    DistributedOptimizer<optim::Adam> adam(net->named_parameters(), options, {.context = &context});
    loss_of(net, global_batch(context.rank())).backward();
    adam.step();
    broadcast_optimizer_state(adam, 0, context);
    EXPECT_DOUBLE_EQ(adam.param_groups()[0].options().get_lr(), 0.1);
    EXPECT_EQ(adam.state().size(), 4u);

    // Rank 1 has a fresh optimizer and rank 0 a used one; both are wrapped afterwards.
    auto other = make_net(1);
    optim::Adam base(other->parameters(), options);
    if (context.rank() == 0) step(other, base, 2);
    broadcast_optimizer_state(base, 0, context);
    DistributedOptimizer wrapped(base, other->named_parameters(),
                                 DistributedOptimizerOptions{.context = &context});
    broadcast_optimizer_state(wrapped, 0, context);
    loss_of(other, global_batch(context.rank())).backward();
    wrapped.step();
    EXPECT_TRUE(verify(other, context));
  });
}

TEST(OptimizerStateOf, DifferentOptimizersAreAMismatchOnAllRanks) {
  on_ranks(3, [&](Context& context) {
    auto net = make_net(1);
    optim::Adam adam(net->parameters());
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    optim::Optimizer& optimizer = context.rank() == 2 ? static_cast<optim::Optimizer&>(adam) : sgd;
    std::string message;
    EXPECT_EQ(code_of([&] { broadcast_optimizer_state(optimizer, 0, context); }, &message),
              Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("rank 2 has Adam with 4 parameters"));

    optim::SGD fewer({net->parameters()[context.rank() == 1 ? 1 : 0]}, optim::SGDOptions(0.1));
    EXPECT_EQ(code_of([&] { broadcast_optimizer_state(fewer, 0, context); }, &message),
              Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("their shapes differ"));
    broadcast_optimizer_state(sgd, 0, context);
  });
}

struct OwnOptions : optim::OptimizerCloneableOptions<OwnOptions> {};
class OwnOptimizer : public optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

TEST(OptimizerStateOf, AnUnknownOptimizerIsUnsupportedOnAllRanks) {
  on_ranks(2, [&](Context& context) {
    auto net = make_net(1);
    OwnOptimizer own(net->parameters());
    EXPECT_EQ(code_of([&] { broadcast_optimizer_state(own, 0, context); }), Errc::unsupported);
  });
}

}  // namespace
}  // namespace hvd::optimizer_state_test
