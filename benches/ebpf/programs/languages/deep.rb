# Burns CPU below as many methods as the first argument says, for as many seconds as the second.

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def descend(depth, till)
  return descend(depth - 1, till) + 1 if depth > 0

  total = 0
  while now < till
    step = 0
    while step < 1000
      total += step * step
      step += 1
    end
  end
  total
end

descend(ARGV[0].to_i, now + ARGV[1].to_f)
