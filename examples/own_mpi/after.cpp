// before.cpp is a program with MPI and a data-parallel loop of its own, which averages each
// gradient with an MPI_Allreduce after the backward pass. after.cpp leaves this to hvd: diff
// before.cpp after.cpp
//
//   mpirun -np 4 own_mpi_before [steps]
//   mpirun -np 4 own_mpi_after [steps]
//
// All ranks but the last train, on a communicator of theirs, a model that learns what a simulation
// computes. The last rank receives the losses and prints them.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include <mpi.h>
#include <torch/torch.h>

#include <hvd/mpi.hpp>
#include <hvd/torch.hpp>

namespace {

constexpr std::int64_t kPendulums = 60;  // per step, of all trainers together

/// Returns random angles and velocities of pendulums, as rows.
torch::Tensor draw_states(int step) {
  return torch::empty({kPendulums, 2}, torch::kFloat64)
      .uniform_(-2, 2, at::detail::createCPUGenerator(step));
}

/// Returns the states a second later.
torch::Tensor simulate(const torch::Tensor& states) {
  torch::Tensor angle = states.select(1, 0);
  torch::Tensor velocity = states.select(1, 1);
  for (int i = 0; i < 100; ++i) {
    velocity = velocity - 0.01 * torch::sin(angle);
    angle = angle + 0.01 * velocity;
  }
  return torch::stack({angle, velocity}, 1);
}

/// Sends a step and its loss to the rank `listener`. A negative step ends the listener's loop.
void tell(int step, double loss, int listener) {
  const double message[]{static_cast<double>(step), loss};
  MPI_Send(message, 2, MPI_DOUBLE, listener, 0, MPI_COMM_WORLD);
}

void listen() {
  for (;;) {
    double message[2];
    MPI_Recv(message, 2, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (message[0] < 0) return;
    std::printf("step %.0f loss %.12f\n", message[0], message[1]);
  }
}

void train(int listener, int steps) {
  torch::manual_seed(static_cast<std::uint64_t>(hvd::rank()));
  torch::nn::Sequential model(torch::nn::Linear(2, 16), torch::nn::Tanh(),
                              torch::nn::Linear(16, 2));
  model->to(torch::kFloat64);
  hvd::DistributedDataParallel parallel(model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  for (int step = 0; step < steps; ++step) {
    const torch::Tensor states = draw_states(step).slice(0, hvd::rank(), kPendulums, hvd::size());
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(states), simulate(states));
    loss.backward();
    optimizer.step();
    if (step % 10 != 0) continue;
    const double mean = hvd::average_metric(loss.item<double>(), "loss");
    if (hvd::rank() == 0) tell(step, mean, listener);
  }

  if (hvd::rank() != 0) return;
  tell(-1, 0, listener);
  const torch::Tensor trained = torch::nn::utils::parameters_to_vector(model->parameters());
  for (int i = 0; i < trained.numel(); ++i) {
    std::printf("parameter %.12f\n", trained[i].item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) throw std::runtime_error("needs two ranks: one to train, one to listen");
  const int listener = size - 1;

  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == listener ? 1 : 0, rank, &mine);
  if (rank == listener) {
    listen();
  } else {
    hvd::init(mine);
    train(listener, steps);
    hvd::shutdown();
  }
  MPI_Comm_free(&mine);
  MPI_Finalize();
  return 0;
} catch (const std::exception& error) {
  // MPI_Abort ends the listener too, which would otherwise wait in MPI_Recv for ever.
  std::fprintf(stderr, "%s\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}
