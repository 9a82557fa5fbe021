// SPDX-License-Identifier: Apache-2.0
// Runs the simulation: sets up domain, neighbours and output, then computes and writes one output step after another.
// Exit status: 0 finished or ended by SIGTERM, 1 an error, 2 a mistake on the command line, 3 another rank was lost.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>

#include <adios2.h>

#include "checkpoint.h"
#include "diagnostics.h"
#include "flow.h"
#include "geometry.h"
#include "options.h"
#include "output.h"
#include "ring.h"

namespace {

using namespace packed_cylinder;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t stop_requested = 0;

// SIGTERM is let through only while waiting for the pace, so it cannot be missed there nor tear a write.
sigset_t prepare_stop_signal() {
  struct sigaction action{};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigset_t blocked, unblocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &unblocked);
  sigdelset(&unblocked, SIGTERM);
  return unblocked;
}

bool stop_pending() {
  sigset_t pending;
  sigpending(&pending);
  return stop_requested != 0 || sigismember(&pending, SIGTERM) == 1;
}

void simulate(const Options& options) {
  const sigset_t unblocked = prepare_stop_signal();
  const Domain domain = make_domain(options);
  const Slab slab = slab_of_rank(domain.nz, options.rank, options.ranks);
  Ring ring({options.rank, options.ranks, options.rendezvous, agreement_hash(options),
             std::chrono::milliseconds(options.connect_timeout_ms)});
  adios2::ADIOS adios(options.config);
  Flow flow(domain, slab, options.viscosity, options.force);
  std::uint64_t step = 0;
  std::uint64_t iteration = 0;
  if (!options.restart.empty()) {
    const Checkpoint checkpoint = read_checkpoint(adios, options, domain, slab);
    flow.load(checkpoint.populations, ring);
    step = checkpoint.step + 1;
    iteration = checkpoint.iteration;
  }
  const Diagnostics diagnostics(domain, options);
  Output output(adios, options, domain, slab);
  for (const std::uint64_t first = step; step < options.steps; ++step) {
    const Clock::time_point begin = Clock::now();
    const std::uint64_t updates = step == 0 ? 0 : options.iterations_per_step;
    for (std::uint64_t i = 0; i < updates; ++i) {
      flow.advance(ring);
    }
    iteration += updates;
    const bool with_populations = options.checkpoint_every != 0 && step % options.checkpoint_every == 0;
    const std::chrono::duration<double> output_time = output.write(step, iteration, flow, with_populations);
    const Summary summary = diagnostics.summarize(flow, ring, stop_pending());
    const std::chrono::duration<double> step_time = Clock::now() - begin;
    if (options.rank == 0) {
      if (step == first) {
        std::printf("%s %zux%zux%zu, porosity %.4f, %zu spheres, rank 0 of %zu\n", options.geometry.c_str(), domain.nx,
                    domain.ny, domain.nz, domain.porosity, domain.spheres.size(), options.ranks);
      }
      std::printf(
          "step %llu iteration %llu mean_velocity %.17g pressure_drop %.17g permeability %.17g step_seconds %.6f "
          "output_seconds %.6f\n",
          static_cast<unsigned long long>(step), static_cast<unsigned long long>(iteration), summary.mean_velocity,
          summary.pressure_drop, summary.permeability, step_time.count(), output_time.count());
      std::fflush(stdout);
    }
    if (summary.stop) {
      std::fprintf(stderr, "packed_cylinder: rank %zu: ended by SIGTERM after step %llu\n", options.rank,
                   static_cast<unsigned long long>(step));
      break;
    }
    if (step + 1 < options.steps) {
      ring.wait_until(begin + std::chrono::milliseconds(options.pace_ms), unblocked);
    }
  }
  output.close();
}

}  // namespace

int main(int argc, char** argv) {
  packed_cylinder::Options options;
  switch (packed_cylinder::parse_options(argc, argv, options)) {
    case packed_cylinder::ParseResult::exit_success:
      return 0;
    case packed_cylinder::ParseResult::exit_usage:
      return 2;
    case packed_cylinder::ParseResult::run:
      break;
  }
  try {
    simulate(options);
  } catch (const packed_cylinder::PeerLost& error) {
    std::fprintf(stderr, "packed_cylinder: rank %zu: %s\n", options.rank, error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "packed_cylinder: rank %zu: %s\n", options.rank, error.what());
    return 1;
  }
  return 0;
}
