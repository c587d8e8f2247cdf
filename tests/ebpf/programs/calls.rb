# Burns CPU in methods and blocks called in different ways, each in one known chain, and accounts for its time.

SLICE_NS = 20_000_000
# In innermost methods.
$burned = 0

def cpu_ns
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
end

def unix_ns
  Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
end

def burn # burns
  start = now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) # burns
  while now < start + SLICE_NS # burns
    number = 0 # burns
    number += 1 while number < 2000 # burns
    now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) # burns
  end # burns
  $burned += now - start # burns
end # burns

def by_call
  middle # calls
end

def middle
  inner # calls
end

def inner
  burn # calls
end

def by_each
  [1].each { burn } # calls
end

def by_nested
  [1].each { |_| { 1 => 2 }.map { burn } } # calls
end

class Key
  attr_reader :key

  def initialize(key)
    @key = key
  end

  def <=>(other)
    burn # calls
    key <=> other.key
  end
end

def by_sort
  [Key.new(2), Key.new(1)].sort # calls
end

def by_sort_by
  [1].sort_by { |number| burn; number } # calls
end

def recurse(depth)
  if depth == 0
    burn # calls
  else
    recurse(depth - 1) # calls
  end
end

def by_recursion
  recurse(30) # calls
end

def by_lambda
  ->(_) { burn }.call(1) # calls
end

def by_hash
  Hash.new { |_, _| burn }[1] # calls
end

class Made
  define_method(:made) { burn } # calls

  def self.make
    burn # calls
  end

  def method_missing(name, *)
    burn # calls
  end

  def respond_to_missing?(*)
    true
  end

  def to_s
    burn # calls
    "made"
  end
end

def by_define_method
  Made.new.made # calls
end

def by_class_method
  Made.make # calls
end

def by_method_missing
  Made.new.anything # calls
end

def by_interpolation
  "#{Made.new}" # calls
end

module Mixed
  def mixed
    super # calls
  end
end

class Base
  def mixed
    burn # calls
  end
end

class Derived < Base
  include Mixed

  def mixed
    super # calls
  end
end

def by_super
  Derived.new.mixed # calls
end

def by_send
  send(:inner) # calls
end

def by_instance_eval
  Object.new.instance_eval { burn } # calls
rescue NoMethodError
  nil
end

def by_eval
  eval("burn", binding, "made up", 1) # calls
end

def handle # calls
  raise ArgumentError # calls
rescue ArgumentError
  burn # calls
end

def by_rescue
  handle # calls
end

def leave
  raise ArgumentError # calls
ensure
  burn # calls
end

def by_ensure
  leave # calls
rescue ArgumentError
  nil
end

def by_catch
  catch(:done) { burn; throw :done } # calls
end

def by_größe
  burn # calls
end

# Short blocks, which are mostly being entered or left.
def by_times # burns
  limit = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) + SLICE_NS # burns
  while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) < limit # burns
    100.times { |number| number * number } # calls, burns
  end # burns
end # burns

def by_checksum # burns
  start = now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) # burns
  while now < start + SLICE_NS # burns
    DATA_BYTES.sum # burns
    now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) # burns
  end # burns
  $burned += now - start # burns
end # burns

DATA_BYTES = "x" * (1 << 20)

# These have a stack of their own.

def by_fiber
  burn # calls
end

def in_fiber
  Fiber.new { by_fiber }.resume # calls
end

def by_enumerator
  burn # calls
end

def in_enumerator
  Enumerator.new { |found| found << by_enumerator }.next # calls
end

def by_thread
  burn # calls
end

def in_thread
  Thread.new { by_thread }.join # calls
end

WAYS = private_methods(false).grep(/\A(by|in)_/) - %i[by_fiber by_enumerator by_thread]

CLOCK = ENV["PROFCOL_TEST_CLOCK"] && File.open(ENV["PROFCOL_TEST_CLOCK"], "w")

def tell(way, start, cpu, burned)
  used = cpu_ns - cpu
  leaf = way == :by_times ? "?" : $burned - burned
  CLOCK.syswrite("#{way.to_s.sub("in_", "by_")} #{start} #{unix_ns} #{used} #{leaf}\n") if CLOCK
end

def main
  limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
    WAYS.each do |way| # calls
      start, cpu, burned = unix_ns, cpu_ns, $burned
      send(way) # calls
      tell(way, start, cpu, burned)
    end
  end
end

if ARGV.length > 1
  Array.new(ARGV[1].to_i) { Thread.new { main } }.each(&:join) # calls
else
  main # calls
end
