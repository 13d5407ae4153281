// RUN: xdsl-opt %s -p 'pebble-fold-batch-norm{keep=true}' --split-input-file | filecheck %s

// Parameters that only the call knows.
// CHECK-LABEL: @dynamic
func.func @dynamic(%x: tensor<?x1xf32>, %p: tensor<1xf32>) -> tensor<?x1xf32> {
  // CHECK: pebble.batch_norm %x
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0 : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Something else reads the layer before.
// CHECK-LABEL: @two_readers
func.func @two_readers(%x: tensor<?x1xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>) {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %p = pebble.constant dense<1.0> : tensor<1xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.batch_norm %h
  %y = pebble.batch_norm %h scale %p bias %p mean %p variance %p epsilon 1.0 : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %h, %y : tensor<?x1xf32>, tensor<?x1xf32>
}

// -----

// A variance below -epsilon makes NaN, which no weight should hold.
// CHECK-LABEL: @negative_variance
func.func @negative_variance(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %p = pebble.constant dense<-2.0> : tensor<1xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.batch_norm %h
  %y = pebble.batch_norm %h scale %p bias %p mean %p variance %p epsilon 1.0 : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
