// RUN: xdsl-opt %s -p pebble-flatten-network --split-input-file | filecheck %s

// Bias and activation belong to the neuron.
// CHECK-LABEL: @two_layers
func.func @two_layers(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  %b = pebble.constant dense<[0.5]> : tensor<1xf32>
  %v = pebble.constant dense<[[3.0]]> : tensor<1x1xf32>
  // CHECK-NEXT: %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32> biases dense<[5.000000e-01, 0.000000e+00]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, tensor<2x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %y = pebble.linear %h, %v : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK-NEXT: func.return %y
  func.return %y : tensor<?x1xf32>
}

// -----

// The addend of a residual is a connection of weight 1 into the neuron of the layer, before its activation.
// CHECK-LABEL: @residual
func.func @residual(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 5.0], [2.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: pebble.network %x sources dense<[0, 1, 0, 1]> : tensor<4xi64> targets dense<[2, 2, 3, 3]> : tensor<4xi64> weights dense<[1.000000e+00, 2.000000e+00, 5.000000e+00, 1.000000e+00]> : tensor<4xf32> biases dense<0.000000e+00> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<0> : tensor<2xi64>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %s = pebble.add %h, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.activate <relu> %s : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Split, concat, reshape and transpose of features are renumberings: output 0 is connected to feature 2, 1 to 0.
// CHECK-LABEL: @renumbered
func.func @renumbered(%x: tensor<?x4xf32>) -> tensor<?x2x1xf32> {
  %w = pebble.constant dense<[[3.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: %{{.*}} = pebble.network %x sources dense<[2, 0]> : tensor<2xi64> targets dense<[4, 5]> : tensor<2xi64> weights dense<[3.000000e+00, 2.000000e+00]>
  // CHECK-NEXT: pebble.reshape %{{.*}} to <[d0, 2, 1]> : (tensor<?x2xf32>) -> tensor<?x2x1xf32>
  %a, %b = pebble.split %x axis 1 : (tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>)
  %c = pebble.concat %b, %a axis 1 : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
  %d = pebble.reshape %c to <[d0, 2, 2]> : (tensor<?x4xf32>) -> tensor<?x2x2xf32>
  %e = pebble.transpose %d axes [0, 2, 1] : (tensor<?x2x2xf32>) -> tensor<?x2x2xf32>
  %f = pebble.reshape %e to <[d0, 4]> : (tensor<?x2x2xf32>) -> tensor<?x4xf32>
  %g, %h = pebble.split %f axis 1 : (tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>)
  %y = pebble.linear %g, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %z = pebble.reshape %y to <[d0, 2, 1]> : (tensor<?x2xf32>) -> tensor<?x2x1xf32>
  func.return %z : tensor<?x2x1xf32>
}

// -----

// What is returned twice, or is an input, is a neuron of its own with one connection of weight 1.
// CHECK-LABEL: @returned_twice
func.func @returned_twice(%x: tensor<?x1xf32>) -> (tensor<?x1xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[3.0]]> : tensor<1x1xf32>
  // CHECK-NEXT: pebble.network %x sources dense<[0, 1, 0]> : tensor<3xi64> targets dense<[1, 2, 3]> : tensor<3xi64> weights dense<[3.000000e+00, 1.000000e+00, 1.000000e+00]> {{.*}} outputs dense<[1, 2, 3]> : tensor<3xi64>
  %y = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  %z = pebble.concat %y, %x axis 1 : (tensor<?x1xf32>, tensor<?x1xf32>) -> tensor<?x2xf32>
  func.return %y, %z : tensor<?x1xf32>, tensor<?x2xf32>
}

// -----

// Softmax is no connections: it cuts the model into two graphs.
// CHECK-LABEL: @cut
func.func @cut(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: %h = pebble.network %x
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %s = pebble.softmax %h
  %s = pebble.softmax %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.network %s
  %y = pebble.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
