// Uses hvd in a program that uses MPI itself. All ranks but the last train; the last one receives
// the losses by MPI and prints them.
//
//   mpirun -np 5 train_own_mpi --steps 1000
//
// The lines that make it distributed are marked 1. to 3.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <torch/torch.h>

#include <hvd/mpi.hpp>
#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int steps = 1000;
  std::size_t batch = 64;  // per rank
};

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
    std::printf("step %.0f loss %.4f\n", message[0], message[1]);
  }
}

void train(MPI_Comm trainers, int listener, const Options& options) {
  // 1. Join the job. Its ranks are those of this communicator.
  hvd::init(trainers);
  {
    mnist::Net model(/*dropout=*/false);
    // 2. Average the gradients.
    hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
        model->named_parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
    // 3. Take a shard of the data.
    const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
    mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                           options.batch);

    for (int step = 0; step < options.steps; ++step) {
      const mnist::Dataset batch = batches.next();
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(model(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      if (step % 10 == 0 || step + 1 == options.steps) {
        const double mean = hvd::average_metric(loss.item<double>(), "loss");
        if (hvd::rank() == 0) tell(step, mean, listener);
      }
    }

    const hvd::Verification same = hvd::verify(model);
    if (hvd::rank() == 0) {
      std::printf("%s on %d ranks\n", same ? "identical parameters" : same.first_difference.c_str(),
                  hvd::size());
      tell(-1, 0, listener);
    }
  }
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains on all ranks of an MPI job but the last");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  int provided = 0;  // HVD_BACKEND=mpi needs MPI_THREAD_MULTIPLE; other backends do not
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
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
    train(mine, listener, options);
  }
  MPI_Comm_free(&mine);
  MPI_Finalize();
  return 0;
} catch (const std::exception& error) {
  // MPI_Abort ends the listener too, which would otherwise wait in MPI_Recv for ever.
  std::fprintf(stderr, "train_own_mpi: %s\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}
