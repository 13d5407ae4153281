// RUN: xdsl-opt %s -p pebble-drop-dead-neurons --split-input-file | filecheck %s

// The hidden values are a result of the model.
// CHECK-LABEL: @returned
func.func @returned(%x: tensor<?x1xf32>) -> (tensor<?x2xf32>, tensor<?x1xf32>) {
  %w = pebble.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %h, %y : tensor<?x2xf32>, tensor<?x1xf32>
}

// -----

// A residual sum needs the width, and a softmax reads every neuron.
// CHECK-LABEL: @other_readers
func.func @other_readers(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [1.0, 0.0]]> : tensor<2x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %r = pebble.add %h, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %k = pebble.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %s = pebble.softmax %k : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %s, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// 0 * inf is NaN, so neuron 1 is not dead.
// CHECK-LABEL: @infinite
func.func @infinite(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<"0x0000803F0000807F"> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Neither is a neuron whose logarithm is -inf.
// CHECK-LABEL: @logarithm
func.func @logarithm(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w activation <log> : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
