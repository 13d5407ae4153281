// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x?xf32>) {
  // CHECK: expected operand 0 with a known last axis, got ?x?
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x?xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected result 0 ?x1, got 4x1
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<4x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected sources 3 64-bit integers, got tensor<3xi32>
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi32> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected weights 3 32-bit floats, got tensor<2xf32>
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0]> : tensor<2xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected output neurons 1 64-bit integers, got tensor<2xi64>
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<[2, 3]> : tensor<2xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: targets: expected neurons from 0 to 3, got 4
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 4]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected a target larger than the source of connection 2, got 3 -> 2
  %y = pebble.network %x sources dense<[0, 1, 3]> : tensor<3xi64> targets dense<[2, 2, 2]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: connection 0 runs 0 -> 1, into an input
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[1, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: both run 0 -> 2
  %y = pebble.network %x sources dense<[0, 0, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: neuron 1 is both input and output
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<1> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: an activation number is outside -1 to 0
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, 1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: times in the order
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> order dense<[0, 1, 1]> : tensor<3xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: but neuron 2 is final only after step
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> order dense<[0, 2, 1]> : tensor<3xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: transfers were counted for another order
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> order dense<[1, 0, 2]> : tensor<3xi64> transfers <memory = 3, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 2, row_writes = 1, order = "0123456789abcdef"> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: transfers were counted for another order
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> transfers <memory = 3, policy = min, weight_reads = 3, bias_reads = 2, row_reads = 2, row_writes = 1, order = "0123456789abcdef"> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}
