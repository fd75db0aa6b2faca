#include <iostream>
#include <sstream>

#include <hvd/torch.hpp>

int main() {
  hvd::init();
  const auto mean = hvd::allreduce(torch::full({4}, static_cast<float>(hvd::rank())));

  std::ostringstream line;  // one write, so that the ranks' lines stay whole
  line << "rank " << hvd::rank() << " of " << hvd::size() << ": mean " << mean[0].item<float>();
  std::cout << line.str() << std::endl;
  hvd::shutdown();
}
