#include "lapse/serve/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace lapse {

Connection::Clock::time_point Connection::after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Connection::~Connection() { ::close(socket_); }

size_t Connection::read(char* to, size_t most, Clock::time_point until) {
  if (!wait(POLLIN, until)) return 0;
  const ssize_t got = ::recv(socket_, to, most, MSG_DONTWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

bool Connection::write(const char* from, size_t count, double seconds) {
  constexpr double kLeast = 64 << 10;  // bytes a second
  const auto until = after(seconds + static_cast<double>(count) / kLeast);
  while (count > 0) {
    const ssize_t done = ::send(socket_, from, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done > 0)
      from += done, count -= static_cast<size_t>(done);
    else if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait(POLLOUT, until))
      return false;
  }
  return true;
}

bool Connection::left() const {
  pollfd one{socket_, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::finish(double seconds) {
  ::shutdown(socket_, SHUT_WR);
  char waste[4096];
  const auto until = after(seconds);
  for (int i = 0; i < 512 && read(waste, sizeof waste, until) > 0; ++i) continue;
}

bool Connection::wait(short what, Clock::time_point until) {
  constexpr int kSlice = 50;  // ms: how soon it is seen that the server stops
  while (!stopping_ && Clock::now() < until) {
    pollfd one{socket_, what, 0};
    const int found = ::poll(&one, 1, kSlice);
    if (found > 0) return (one.revents & what) != 0;
    if (found < 0 && errno != EINTR) return false;
  }
  return false;
}

}  // namespace lapse
