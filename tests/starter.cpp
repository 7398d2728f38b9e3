// Starts the program many times in little time, for the tests: to load libtorch takes a quarter of a second, to fork a
// process that has loaded it some milliseconds.
//
// Preloaded into `lapse`, it holds the program just before main. Each message on the socket that is its standard input
// asks for one run: the working directory and the arguments, each ended by a zero byte, and with them three descriptors
// for the run's standard input, output and error. A forked child goes on into main, as if it had been started so. The
// answers: the child's process id, and once it has ended, its status as of wait(2). The other end of the socket is in
// starter.py.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using StartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main program = nullptr;

struct Request {
  std::vector<char> text = std::vector<char>(1 << 18);  // more than a socket's message holds
  std::array<int, 3> streams{};

  /// False where the other end is closed.
  bool receive() {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)];
    iovec part{text.data(), text.size() - 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto length = recvmsg(STDIN_FILENO, &message, 0);
    if (length <= 0) return false;
    text[static_cast<size_t>(length)] = '\0';
    std::memcpy(streams.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof streams);
    end = text.data() + length;
    return true;
  }

  const char* end = nullptr;
};

[[noreturn]] void run(char* name, Request& request, char** environment) {
  std::vector<char*> arguments{name};
  const char* folder = request.text.data();
  for (char* next = request.text.data() + std::strlen(folder) + 1; next < request.end; next += std::strlen(next) + 1)
    arguments.push_back(next);
  const auto count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  for (int stream = 0; stream < 3; ++stream) {
    dup2(request.streams[static_cast<size_t>(stream)], stream);
    close(request.streams[static_cast<size_t>(stream)]);
  }
  if (chdir(folder) != 0) std::abort();
  std::exit(program(count, arguments.data(), environment));
}

int held(int, char** arguments, char** environment) {
  unsetenv("LD_PRELOAD");  // what the program starts is not held
  for (Request request; request.receive();) {
    const pid_t child = fork();
    if (child == 0) run(arguments[0], request, environment);
    for (const int stream : request.streams) close(stream);
    int status = 0;
    if (child < 0 || write(STDIN_FILENO, &child, sizeof child) < 0) return 1;
    if (waitpid(child, &status, 0) < 0 || write(STDIN_FILENO, &status, sizeof status) < 0) return 1;
  }
  return 0;
}

}  // namespace

// glibc's own calls the program's main; it is given ours instead.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack_end) {
  program = main;
  const auto start = reinterpret_cast<StartMain>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(held, argc, argv, init, fini, loader_fini, stack_end);
}
