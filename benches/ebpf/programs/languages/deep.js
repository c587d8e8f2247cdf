// Burns CPU below as many functions as the first argument says, for as many seconds as the second.

function descend(depth, until) {
  if (depth > 0) {
    return descend(depth - 1, until) + 1;
  }
  let total = 0;
  while (performance.now() < until) {
    for (let step = 0; step < 1000; step++) {
      total += step * step;
    }
  }
  return total;
}

descend(Number(process.argv[2]), performance.now() + Number(process.argv[3]) * 1000);
