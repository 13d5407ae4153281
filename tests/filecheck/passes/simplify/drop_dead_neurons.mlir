// RUN: xdsl-opt %s -p pebble-drop-dead-neurons --split-input-file | filecheck %s

// Neuron 1 has no incoming connection: relu(3) * [4, 5] goes into the bias. Neuron 2 has no outgoing one.
// CHECK-LABEL: @both_kinds
func.func @both_kinds(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant {pebble.values = ["w"]} dense<[[1.0, 0.0, 7.0], [2.0, 0.0, 0.0]]> : tensor<2x3xf32>
  %b = pebble.constant dense<[9.0, 3.0, 8.0]> : tensor<3xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [4.0, 5.0], [0.0, 0.0]]> : tensor<3x2xf32>
  // CHECK-NEXT: %w = pebble.constant {pebble.values = ["w"]} dense<{{.}}[1.000000e+00], [2.000000e+00]]> : tensor<2x1xf32>
  // CHECK-NEXT: %b = pebble.constant dense<9.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: [[H:%.*]] = pebble.linear %x, %w bias %b activation <relu> {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  // CHECK-NEXT: %v = pebble.constant dense<{{.}}[1.000000e+00, 2.000000e+00]]> : tensor<1x2xf32>
  // CHECK-NEXT: [[C:%.*]] = pebble.constant dense<[1.200000e+01, 1.500000e+01]> : tensor<2xf32>
  // CHECK-NEXT: %y = pebble.linear [[H]], %v bias [[C]]
  %y = pebble.linear %h, %v : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Through constants behind the layer, in sparse weights, back to the layer before: its neuron 1 is read by a dropped one only.
// CHECK-LABEL: @back
func.func @back(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %u = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[3.0, 4.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %v = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64> values dense<[5.0]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  %slope = pebble.constant dense<[[0.5, 0.25]]> : tensor<1x2xf32>
  // CHECK: pebble.linear %x, {{.*}} -> tensor<?x1xf32>
  %g = pebble.linear %x, %u : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear {{.*}} (tensor<?x1xf32>, tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  %h = pebble.linear %g, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
  // CHECK: [[SLOPE:%.*]] = pebble.constant dense<5.000000e-01> : tensor<1xf32>
  // CHECK-NEXT: pebble.prelu {{.*}}, [[SLOPE]] : (tensor<?x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %p = pebble.prelu %h, %slope : (tensor<?x2xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.linear {{.*}} (tensor<?x1xf32>, tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  %y = pebble.linear %p, %v : (tensor<?x2xf32>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Of a layer that is dead as a whole one neuron stays, and so do the model's inputs.
// CHECK-LABEL: @all_dead
func.func @all_dead(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<0.0> : tensor<2x3xf32>
  %v = pebble.constant dense<0.0> : tensor<3x1xf32>
  // CHECK: pebble.linear %x, {{.*}} (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
  %y = pebble.linear %h, %v : (tensor<?x3xf32>, tensor<3x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
