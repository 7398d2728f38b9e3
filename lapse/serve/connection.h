// A client's socket.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

namespace lapse {

/// Its waits end in time, and when the server stops.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  /// So many seconds from now.
  static Clock::time_point after(double seconds);

  Connection(int socket, const std::atomic<bool>& stopping) : socket_(socket), stopping_(stopping) {}
  ~Connection();
  Connection(const Connection&) = delete;

  /// Some bytes; 0: there are none any more, or the time is over.
  size_t read(char* to, size_t most, Clock::time_point until);
  /// False if the reader has gone, or takes less than it should (HttpLimits).
  bool write(const char* from, size_t count, double seconds);
  /// Whether the other side has closed.
  bool left() const;
  /// Says that nothing more comes, and takes what is still being sent, for a moment: closing at once would take the
  /// reply away from who is still sending.
  void finish(double seconds);

  int socket() const { return socket_; }

 private:
  bool wait(short what, Clock::time_point until);

  int socket_;
  const std::atomic<bool>& stopping_;
};

}  // namespace lapse
