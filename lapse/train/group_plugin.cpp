// The group of several processes: PyTorch's own c10d, with Gloo. A library of its own, which a single process never
// loads. Gloo's headers are Debian's; its code is what libtorch carries.
#define USE_C10D_GLOO  // as libtorch was built
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lapse/core/error.h"
#include "lapse/core/group.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;
using std::chrono::milliseconds;

constexpr int64_t kSmall = 1024;  // up to so many numbers every rank adds all of them
constexpr milliseconds kMoment{3000};

std::string variable(const char* name, const std::string& otherwise = "") {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

int64_t whole(const char* name) {
  const std::string text = variable(name);
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < 0)
    fail(fmt::format("{}='{}' in the environment is no number; start several processes by torchrun", name, text));
  return value;
}

class C10dGroup : public Group {
 public:
  explicit C10dGroup(double patience)
      : rank_(whole("RANK")), size_(whole("WORLD_SIZE")), patience_(static_cast<int64_t>(patience * 1000)) {
    if (rank_ >= size_) fail(fmt::format("RANK={} of WORLD_SIZE={}: ranks begin at 0", rank_, size_));
    // Gloo and the store write to sockets without MSG_NOSIGNAL: a rank that ended must be an error here, not a signal.
    std::signal(SIGPIPE, SIG_IGN);
    const std::string host = variable("MASTER_ADDR");
    const int64_t port = whole("MASTER_PORT");
    if (port > 65535) fail(fmt::format("MASTER_PORT='{}' in the environment is no port: they end at 65535", port));
    // Under torchrun its agent may keep the store; then each rank is a client. Keys of an earlier start are not ours.
    const bool hosted = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    try {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(port), options.isServer = rank_ == 0 && !hosted;
      options.waitWorkers = false, options.timeout = patience_;
      store_ = c10::make_intrusive<c10d::PrefixStore>(
          "lapse/" + variable("TORCHELASTIC_RUN_ID") + "/" + variable("TORCHELASTIC_RESTART_COUNT", "0"),
          c10::make_intrusive<c10d::TCPStore>(host, options));
      auto how = c10d::ProcessGroupGloo::Options::create(patience_);
      const std::string interface = variable("GLOO_SOCKET_IFNAME");
      how->devices.push_back(interface.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                               : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
      gloo_ =
          c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(rank_), static_cast<int>(size_), how);
    } catch (const std::exception& error) {
      fail(fmt::format("rank {} cannot meet the {} others at {}:{}: {}", rank_, size_ - 1, host, port, brief(error)));
    }
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  int64_t neighbours() const override { return variable("LOCAL_WORLD_SIZE").empty() ? 1 : whole("LOCAL_WORLD_SIZE"); }
  void sum(std::span<float> numbers) override { sum_of(numbers, at::kFloat); }
  void sum(std::span<double> numbers) override { sum_of(numbers, at::kDouble); }

  std::vector<std::string> gather(const std::string& bytes) override {
    Tensor length = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong),
           lengths = at::empty({size_}, at::kLong);
    together([&] { gloo_->_allgather_base(lengths, length)->wait(); });
    if (rank_ != 0) {
      std::vector<Tensor> mine = {at::empty({std::max<int64_t>(1, std::ssize(bytes))}, at::kByte)};
      std::memcpy(mine[0].mutable_data_ptr(), bytes.data(), bytes.size());
      together([&] { gloo_->send(mine, 0, kTag)->wait(); });
      return {};
    }
    std::vector<std::string> all = {bytes};
    for (int64_t r = 1; r < size_; ++r) {
      const int64_t n = lengths.const_data_ptr<int64_t>()[r];
      std::vector<Tensor> theirs = {at::empty({std::max<int64_t>(1, n)}, at::kByte)};
      together([&] { gloo_->recv(theirs, static_cast<int>(r), kTag)->wait(); });
      all.emplace_back(static_cast<const char*>(theirs[0].const_data_ptr()), n);
    }
    return all;
  }

  std::string broadcast(const std::string& bytes) override {
    std::vector<Tensor> length = {at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong)};
    together([&] { gloo_->broadcast(length)->wait(); });
    const int64_t n = length[0].const_data_ptr<int64_t>()[0];
    if (n == 0) return {};
    std::vector<Tensor> all = {at::empty({n}, at::kByte)};
    if (rank_ == 0) std::memcpy(all[0].mutable_data_ptr(), bytes.data(), n);
    together([&] { gloo_->broadcast(all)->wait(); });
    return {static_cast<const char*>(all[0].const_data_ptr()), static_cast<size_t>(n)};
  }

 private:
  static constexpr int kTag = 1;

  /// Of many numbers each rank adds a piece and tells the others; of few each rank adds all.
  template <class T>
  void sum_of(std::span<T> numbers, at::ScalarType type) {
    const auto n = std::ssize(numbers);
    const bool small = n <= kSmall;
    const int64_t piece = small ? n : (n + size_ - 1) / size_, sent = small ? n : piece * size_;
    Tensor given = at::from_blob(numbers.data(), {n}, type);
    if (sent > n) given = lapse::cat({given, at::zeros({sent - n}, type)});
    Tensor received = at::empty({piece * size_}, type);
    std::vector<int64_t> equal;  // pieces
    together([&] {
      if (small)
        gloo_->_allgather_base(received, given)->wait();
      else
        gloo_->alltoall_base(received, given, equal, equal)->wait();
    });
    Tensor mine = received.narrow(0, 0, piece);
    for (int64_t r = 1; r < size_; ++r) mine += received.narrow(0, r * piece, piece);
    if (small) return void(std::copy_n(mine.const_data_ptr<T>(), n, numbers.begin()));
    together([&] { gloo_->_allgather_base(given, mine)->wait(); });
    if (sent > n) std::copy_n(given.const_data_ptr<T>(), n, numbers.begin());
  }

  /// One call of all ranks. Where it fails, those that notice say so in the store, and who says nothing is to blame.
  void together(const std::function<void()>& call) {
    std::string why;
    try {
      return call();
    } catch (const std::exception& error) {
      why = brief(error);
    }
    std::string silent;
    try {
      const auto key = [](int64_t rank) { return fmt::format("waits/{}", rank); };
      store_->set(key(rank_), "1");
      std::this_thread::sleep_for(kMoment);
      for (int64_t r = 0; r < size_; ++r)
        if (!store_->check({key(r)})) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", r);
    } catch (const std::exception&) {
      silent = "0";  // which keeps the store, or whose agent does
    }
    fail(fmt::format("rank {}: lost rank {}, which ended or did not answer for {} s; what it said last tells why ({})",
                     rank_, silent.empty() ? "?" : silent, patience_.count() / 1000, why));
  }

  /// The first line of it.
  static std::string brief(const std::exception& error) {
    const auto* known = dynamic_cast<const c10::Error*>(&error);
    const std::string text = known ? known->what_without_backtrace() : error.what();
    return text.substr(0, text.find('\n'));
  }

  const int64_t rank_, size_;
  const milliseconds patience_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

}  // namespace
}  // namespace lapse

/// For lapse/core/group.cpp. The group lives as long as the process.
extern "C" lapse::Group* lapse_join_group(double patience) { return new lapse::C10dGroup(patience); }
