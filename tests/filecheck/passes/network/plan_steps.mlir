// RUN: xdsl-opt %s -p pebble-plan-steps | filecheck %s

// Neurons 0 and 1 are inputs, 2 a hidden one with relu, 3 the output; the memory has room for three values. Columns are
// the kind of step, the place in memory, the place of a connection's source, and the number of a neuron or connection:
// the bias of 2 into place 0, input 0 into place 1, its connection, ..., relu (3), and at the end the row of 3 is stored (4).
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  // CHECK: steps dense<{{\[\[}}1, 0, 0, 0], [0, 1, 0, 2], [2, 0, 1, 0], [1, 0, 0, 1], [2, 0, 1, 1], [3, 1, 0, 2], [0, 0, 0, 3], [2, 1, 0, 2], [4, 0, 0, 3]]> : tensor<9x4xi64>
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> order dense<[0, 1, 2]> : tensor<3xi64> transfers <memory = 3, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 2, row_writes = 1, order = "d0e7527182355c2d"> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
